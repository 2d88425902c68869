# SPDX-License-Identifier: Apache-2.0
# words.pl FILE: counts words and pairs of words, sorts them, prints the most frequent.
use strict;
use warnings;
my (%count, %pair, %by_length);
my $last = '';
open my $in, '<', $ARGV[0] or die "$ARGV[0]: $!\n";
while (my $line = <$in>) {
    for my $word (map { lc } $line =~ /(\w+)/g) {
        $count{$word}++;
        $pair{"$last $word"}++ if length $last > 5;
        push @{ $by_length{length $word} }, $word if $count{$word} == 1;
        $last = $word;
    }
}
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my @pairs = sort { $pair{$b} <=> $pair{$a} || $a cmp $b } keys %pair;
print "$_ $count{$_}\n" for @top[0 .. 9];
print "$_ $pair{$_}\n" for @pairs[0 .. 9];
print join(' ', map { scalar @{ $by_length{$_} } } sort { $a <=> $b } keys %by_length), "\n";
