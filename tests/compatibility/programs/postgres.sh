# SPDX-License-Identifier: Apache-2.0
# A cluster in this folder: initdb, tables, a parallel query, a backend that is killed, stop.
bin=/usr/lib/postgresql/15/bin
ask() { "$bin/psql" -h "$PWD" -X -A -t -q -d postgres "$@" 2>&1; }
"$bin/initdb" -D data -A trust -N --locale=C.UTF-8 >initdb.log || exit 1
"$bin/pg_ctl" -D data -w -s -l log -o "-k $PWD -c listen_addresses= -c fsync=off -c max_connections=10 -c jit=off" start || exit 2
ask -c "create table t as select i as a, md5(i::text) as b from generate_series(1, 60000) i; create index on t(b); analyze t"
ask -c "set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set max_parallel_workers_per_gather = 2;
        explain (costs off) select count(*), sum(length(b)) from t where a % 3 = 0" | grep -c 'Parallel Seq Scan'
ask -c "set min_parallel_table_scan_size = 0; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
        select count(*), sum(length(b)), max(b) from t where a % 3 = 0"
for number in 1 2 3; do ask -c "select count(distinct left(b, 4)) from t where a > $number" & done
wait
ask -c "do \$\$ begin perform pg_terminate_backend(pg_backend_pid()); end \$\$" | grep -c terminating
ask -c "select sum(a) from t"
"$bin/pg_dump" -h "$PWD" postgres | grep -c '^[0-9]'
"$bin/pg_ctl" -D data -w -s -m fast stop
echo "$?"
grep -cE 'PANIC|signal' log
