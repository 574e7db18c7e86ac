"""A fake shop: adds some orders to its database."""

import sqlite3
import sys

with sqlite3.connect("shop.db") as db:
    db.execute("create table if not exists orders (id integer primary key autoincrement, amount real)")
    db.executemany("insert into orders (amount) values (?)", [(n * 2.5,) for n in range(int(sys.argv[1]))])
db.close()
