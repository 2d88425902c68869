<?php
// SPDX-License-Identifier: Apache-2.0
// PHP at work. Its modules are opened with RTLD_DEEPBIND, which binds their malloc past every preload.
$rows = [];
for ($i = 0; $i < 20000; $i++) {
    $rows[] = ['id' => $i, 'name' => 'name ' . ($i * 7919 % 10007)];
}
usort($rows, fn($a, $b) => strcmp($a['name'], $b['name']) ?: $a['id'] <=> $b['id']);
echo md5(json_encode($rows)), "\n";
echo preg_replace_callback('/(\d)(\d+)/', fn($m) => $m[2] . $m[1], $rows[77]['name']), "\n";
$folder = new ArrayIterator(get_loaded_extensions());
echo count($folder) > 5 ? "extensions loaded\n" : "no extensions\n";
exit(8);
