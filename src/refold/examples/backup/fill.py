"""Makes a small database to back up, or adds to it."""

import sqlite3

with sqlite3.connect("shop.db") as db:
    db.execute("create table if not exists orders (id integer primary key, amount real)")
    db.executemany("insert into orders (amount) values (?)", [(n * 1.5,) for n in range(100)])
db.close()
