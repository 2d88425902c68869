#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# redis.sh [REQUESTS]: a redis-server under load of redis-benchmark, from its start to its end, on a private
# socket.
# For `imas bench -- bench/inputs/redis.sh`: the whole tree is measured, and most of it is the server.
set -eu
requests=${1:-20000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
redis-server --port 0 --unixsocket "$folder/socket" --save '' --appendonly no --daemonize no --loglevel warning \
    --dir "$folder" --maxmemory 512mb >"$folder/log" 2>&1 &
server=$!
tries=0
until [ "$(redis-cli -s "$folder/socket" ping 2>/dev/null)" = PONG ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ]; then
        echo "redis.sh: redis-server does not answer" >&2
        exit 1
    fi
    sleep 0.05
done
redis-benchmark -s "$folder/socket" -q -n "$requests" -c 20 -P 8 -d 100 -r 10000 -t set,get,lpush,rpop,sadd,hset,zadd >"$folder/output"
redis-cli -s "$folder/socket" shutdown nosave >/dev/null 2>&1 || true
wait "$server"
