-- How often a command was handed back since that last was a loss; 100 times are one, so that it cannot go on for ever.
alter table commands add column hand_backs integer not null default 0;
