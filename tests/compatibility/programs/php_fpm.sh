# SPDX-License-Identifier: Apache-2.0
# php-fpm on a socket in this folder: three requests by cgi-fcgi, a reload, one more, quit.
sed "s:FOLDER:$PWD:" "$(dirname "$0")/php_fpm.conf" >conf
chmod 755 . ..
cp "$(dirname "$0")/work.php" page.php
ask() {
    SCRIPT_FILENAME=$PWD/page.php SCRIPT_NAME=/page.php REQUEST_METHOD=GET QUERY_STRING="$1" cgi-fcgi -bind -connect "$PWD/socket" | tr -d '\r'
}
/usr/sbin/php-fpm8.2 -n -y "$PWD/conf" || exit 2
until [ -S socket ]; do sleep 0.02; done
for number in 1 2 3; do ask "$number"; done
master=$(cat pid)
kill -USR2 "$master"
for number in $(seq 300); do [ "$(grep -c 'ready to handle connections' fpm-log)" -ge 2 ] && break; sleep 0.02; done
ask 4
kill -QUIT "$(cat pid)"
for number in $(seq 300); do [ -e pid ] || break; sleep 0.02; done
grep -cE 'exited on signal' fpm-log
