"""The store on PostgreSQL, for several processes on several machines; the server's clock is its clock."""
