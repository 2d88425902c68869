// SPDX-License-Identifier: Apache-2.0
// One child by each way, and one that is killed.
const { spawnSync, execSync, fork } = require('child_process');

if (process.argv[2] === 'child') {
  process.on('message', (number) => { process.send(Buffer.alloc(number).length); process.disconnect(); });
} else {
  const spawned = spawnSync('/bin/sh', ['-c', 'echo out; echo err >&2; exit 3']);
  console.log(spawned.status, String(spawned.stdout).trim(), String(spawned.stderr).trim());
  console.log(String(execSync('printf "%s " a b c | tr a-z A-Z')).trim());
  console.log(spawnSync('/bin/sleep', ['60'], { timeout: 100 }).signal);
  const child = fork(__filename, ['child']);
  child.on('message', (answer) => console.log('answer', answer));
  child.on('exit', (code, signal) => console.log('exit', code, signal));
  child.send(123456);
}
