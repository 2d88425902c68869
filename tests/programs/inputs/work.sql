-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, score REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO t SELECT i, 'name ' || (i * 7919 % 10007), i * 0.5 FROM n;
CREATE INDEX by_name ON t (name);
SELECT count(*), sum(score), min(name), max(name) FROM t;
SELECT name, count(*) AS c FROM t GROUP BY name ORDER BY c DESC, name LIMIT 5;
SELECT length(group_concat(name)) FROM (SELECT name FROM t ORDER BY score DESC LIMIT 5000);
UPDATE t SET name = upper(name) || '-' || id WHERE id % 3 = 0;
SELECT substr(name, 1, 6), avg(score) FROM t GROUP BY substr(name, 1, 6) ORDER BY 1 LIMIT 5;
