<?php
// SPDX-License-Identifier: Apache-2.0
// arrays.php N: arrays, objects and strings; prints a checksum.
class Item { public array $tags = []; public function __construct(public int $id, public string $name) {} }
$n = (int) $argv[1];
$items = [];
for ($i = 0; $i < $n; $i++) {
    $item = new Item($i, 'item ' . ($i * 7919) % 10007);
    $item->tags = [$i % 7, "t$i", str_repeat(chr(97 + $i % 26), $i % 60)];
    $items[] = $item;
    if ($i % 40000 === 39999) { $items = array_values(array_filter($items, fn($x) => $x->id % 3)); }
}
usort($items, fn($a, $b) => [$a->name, $a->id] <=> [$b->name, $b->id]);
$by = [];
foreach ($items as $item) { $by[$item->name][] = implode(',', $item->tags); }
echo count($items), ' ', count($by), ' ', strlen(json_encode($by)), ' ', md5(serialize($by)), "\n";
