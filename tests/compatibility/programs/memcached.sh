# SPDX-License-Identifier: Apache-2.0
# memcached on a socket in this folder; perl is its client.
memcached -s "$PWD/socket" -t 4 -m 32 &
server=$!
until [ -S socket ]; do kill -0 "$server" || exit 3; sleep 0.02; done
perl -MIO::Socket::UNIX -e '
    my $s;
    for (1 .. 1000) { last if $s = IO::Socket::UNIX->new($ARGV[0]); select undef, undef, undef, 0.02 } # bound, and about to listen
    $s or die $!;
    my $stored = 0;
    for my $i (1 .. 3000) { my $v = "x" x ($i % 3000 + 1); print {$s} "set k$i 0 0 ", length $v, "\r\n$v\r\n"; $stored++ if <$s> =~ /STORED/ }
    print "$stored\n";
    print {$s} "get k7 k2999\r\n";
    while (<$s>) { last if /^END/; print length, "\n" }
' "$PWD/socket"
kill "$server"
wait "$server"
echo "$?"
