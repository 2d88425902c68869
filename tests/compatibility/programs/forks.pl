# SPDX-License-Identifier: Apache-2.0
# 40 children at once, each allocates and answers through a pipe.
use strict;
use warnings;

my @pipes;
for my $number (1 .. 40) {
    pipe(my $in, my $out) or die "pipe: $!";
    my $child = fork() // die "fork: $!";
    if (!$child) {
        my %count;
        $count{$_ % 97} .= 'x' x $number for 1 .. 3000;
        print {$out} length(join('', values %count)), "\n";
        exit 0;
    }
    close $out;
    push @pipes, $in;
}
print scalar <$_> for @pipes;
1 while wait() > 0;
