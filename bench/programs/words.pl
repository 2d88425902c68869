# SPDX-License-Identifier: Apache-2.0
my %seen;
for my $i (1 .. 400_000) { my $w = "w" . ($i * 7919 % 100_003); push @{$seen{$w}}, "line $i" }
print scalar(keys %seen), "\n";
