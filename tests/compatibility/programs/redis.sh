# SPDX-License-Identifier: Apache-2.0
# A server on a socket in this folder: keys, BGSAVE, BGREWRITEAOF, restart from the file.
begin() {
    redis-server --port 0 --unixsocket "$PWD/s" --daemonize no --dbfilename dump --appendonly no >log 2>&1 &
    server=$!
    until redis-cli -s s ping 2>/dev/null | grep -q PONG; do kill -0 "$server" || exit 3; sleep 0.02; done
}
ended() { while [ "$(redis-cli -s s info persistence | tr -d '\r' | sed -n "s/^$1://p")" != 0 ]; do sleep 0.02; done; }
begin
seq 20000 | sed 's/.*/set key& value-&-&-&/' | redis-cli -s s | sort | uniq -c
redis-cli -s s bgsave
seq 3000 | sed 's/.*/append key& more/' | redis-cli -s s | tail -n 1
ended rdb_bgsave_in_progress
redis-cli -s s bgrewriteaof
ended aof_rewrite_in_progress
redis-cli -s s info persistence | grep -E 'last_bgsave_status|last_bgrewrite_status' | tr -d '\r'
redis-cli -s s shutdown save
wait "$server"
echo "$?"
begin
redis-cli -s s dbsize
redis-cli -s s get key2999
redis-cli -s s eval "local t = {} for i = 1, 20000 do t[i] = redis.call('get', 'key' .. i) end return #table.concat(t)" 0
redis-cli -s s shutdown nosave
wait "$server"
echo "$?"
