# SPDX-License-Identifier: Apache-2.0
# held.pl MODE: memory of a Perl program with a known truth for bench/held.
use strict;
$| = 1;
my $mode = shift;
my %base = map { $_ => "x" x ($_ % 900) } 1 .. 20000;
my @keep;
print "ready\n";
while (1) {
    for my $i (1 .. 20) {
        if ($mode eq "cycle") { my $one = {text => "z" x 300}; my $two = {other => $one}; $one->{other} = $two; }
        elsif ($mode eq "array") { push @keep, "y" x 500 }
        else { @keep = map { "w" x 400 } 1 .. 20 }
    }
    select(undef, undef, undef, 0.02);
}
