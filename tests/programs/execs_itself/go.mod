module execs_itself

go 1.19
