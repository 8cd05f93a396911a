module weir/bindings/go

go 1.19
