-- SPDX-License-Identifier: Apache-2.0
-- A table in memory that stays: many megabytes of live pages.
CREATE TABLE part (id INTEGER PRIMARY KEY, kind INTEGER, name TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)
  INSERT INTO part SELECT i, i * 7919 % 211, printf('part-%06d-%s', i * 104729 % 1000003, hex(i)) FROM n;
CREATE INDEX part_of_kind ON part (kind, name);
SELECT kind, count(*), max(name) FROM part GROUP BY kind HAVING kind % 53 = 0;
DELETE FROM part WHERE kind % 4 = 0;
SELECT count(*) FROM part;
