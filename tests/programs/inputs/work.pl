# SPDX-License-Identifier: Apache-2.0
# Perl at work: hashes, strings, a sort, regular expressions.
use strict;
use warnings;
my %count;
my $text = '';
for my $i (1 .. 40000) {
    my $word = 'w' . ($i * 7919 % 3001);
    $count{$word}++;
    $text .= "$word " if $i % 3 == 0;
}
my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print scalar(@order), " words, first @order[0..4]\n";
my $changed = ($text =~ s/w(\d)(\d*)/$2$1/g);
print "$changed changed, ", length($text), " characters\n";
while (my $line = <STDIN>) { chomp $line; print "input ", scalar reverse($line), "\n"; }
exit 4;
