<?php // SPDX-License-Identifier: Apache-2.0
$rows = [];
for ($i = 0; $i < 30000; $i++) $rows["key$i"] = ['n' => $i, 's' => str_repeat('x', $i % 50)];
usort($rows, fn($a, $b) => $b['n'] <=> $a['n']);
echo count($rows), ' ', strlen(json_encode($rows)), ' ', preg_match_all('/x{3}/', serialize($rows)), "\n";
echo shell_exec('echo child');
unset($rows);
gc_collect_cycles();
echo strlen(str_repeat('y', 5000000)), "\n";
