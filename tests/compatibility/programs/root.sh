# SPDX-License-Identifier: Apache-2.0
# Copies a program and its libraries into a small root and runs it there. Our libraries are not in it.
mkdir root
for file in "$1" $(env -u LD_PRELOAD ldd "$1" | grep -o '/[^ ]*'); do mkdir -p "root$(dirname "$file")" && cp -L "$file" "root$file"; done
/usr/sbin/chroot root "$@"
echo "$?"
