<?php
// SPDX-License-Identifier: Apache-2.0
// JSON of a size that the query names, templates, text work.
$count = max(1, (int)($_GET["size"] ?? 1));
$rows = [];
for ($i = 0; $i < $count; $i++) {
    $rows[] = ["id" => $i, "name" => str_repeat("item $i", 3), "tags" => ["a$i", "b$i", "c$i"], "price" => $i * 1.5];
}
switch ($_GET["kind"] ?? "") {
    case "json":
        header("Content-Type: application/json");
        echo json_encode(json_decode(json_encode($rows), true));
        break;
    case "page":
        foreach ($rows as $row) {
            echo "<li>", htmlspecialchars($row["name"]), ": ", implode(", ", $row["tags"]), "</li>\n";
        }
        break;
    case "text":
        echo strlen(preg_replace("/item (\d+)/", "thing $1", implode(" ", array_column($rows, "name"))));
        break;
    default:
        echo "ok";
}
