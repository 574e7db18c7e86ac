create table if not exists places (what text, city text, free integer check (free >= 0), primary key (what, city));
insert into places values ('flight', 'Lisbon', 9), ('hotel', 'Lisbon', 4), ('car', 'Lisbon', 0),
                          ('flight', 'Oslo', 2), ('hotel', 'Oslo', 7), ('car', 'Oslo', 3) on conflict do nothing;
create table if not exists bookings (trip text, what text, city text, primary key (trip, what));
create trigger if not exists taken after insert on bookings begin
  update places set free = free - 1 where what = new.what and city = new.city;
end;
create trigger if not exists given_back after delete on bookings begin
  update places set free = free + 1 where what = old.what and city = old.city;
end;
