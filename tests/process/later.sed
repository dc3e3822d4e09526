# The messages of a later version: every table has one more field, and Body one more kind.
/^table /,/^}/ s/^}/  later: uint32 = 7;\n}/
/^union Body/,/^}/ s/[A-Za-z]$/&, Later/
s/^union Body/table Later { later: uint32; }\n&/
