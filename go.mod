module example.org/rls

go 1.26.0
