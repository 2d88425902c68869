-- SPDX-License-Identifier: Apache-2.0
-- A table filled, indexed, grouped, joined, updated and emptied, in memory.
CREATE TABLE part (id INTEGER PRIMARY KEY, kind INTEGER, name TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 90000)
  INSERT INTO part SELECT i, i * 7919 % 211, printf('part-%06d-%s', i * 104729 % 1000003, hex(i)), i * 31 % 997 / 10.0 FROM n;
CREATE INDEX part_of_kind ON part (kind, price);
SELECT kind, count(*), round(avg(price), 3), group_concat(substr(name, 6, 6)) FROM part GROUP BY kind HAVING kind % 53 = 0;
SELECT count(*) FROM part AS a JOIN part AS b ON a.kind = b.kind AND b.id < 200;
SELECT upper(name) || '-' || replace(name, '0', 'zero') FROM part ORDER BY name DESC LIMIT 3;
UPDATE part SET name = name || '-' || kind WHERE kind % 3 = 0;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM part WHERE id % 3001 = 0;
DELETE FROM part WHERE kind % 2 = 0;
SELECT count(*), max(length(name)) FROM part;
