# SPDX-License-Identifier: Apache-2.0
# lists.tcl N: lists, dictionaries and strings; prints a checksum.
set n [lindex $argv 0]
set words {}
for {set i 0} {$i < $n} {incr i} { lappend words "w[expr {($i * 7919) % 10007}]-$i" }
set sorted [lsort -dictionary $words]
set d [dict create]
foreach word $sorted { dict lappend d [string range $word 0 3] [string toupper $word] }
set total 0
dict for {key list} $d { incr total [string length [join [lreverse $list] ,]] }
array set table {}
foreach word $words { set table($word) [split $word -] }
puts "[llength $sorted] [dict size $d] $total [array size table]"
