# Finishes a guest's root directory ($1) and writes it as a file system image ($2).
set -eu
root=$1 image=$2
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash agent
chroot "$root" chsh -s /bin/bash root
echo 'agent ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/agent"
chmod 440 "$root/etc/sudoers.d/agent"
echo opensafe-guest >"$root/etc/hostname"
cat >"$root/etc/hosts" <<HOSTS
127.0.0.1 localhost opensafe-guest
::1 localhost
10.0.2.100 host
HOSTS
: >"$root/etc/resolv.conf"
mkdir -p "$root/share" "$root/out" "$root/usr/lib/modules"
# In a mount namespace of its own: what is mounted below the root stays out of the image, and so does apt's cache.
exec unshare --mount --propagation private sh -eu -c '
	findmnt -rno TARGET | grep "^$1/" | sort -r | while read -r target; do umount -l "$target"; done
	for cache in var/lib/apt/lists var/cache; do mount -t tmpfs -o mode=755 none "$1/$cache"; done
	mkfs.ext4 -q -F -m 0 -O ^has_journal,^resize_inode -E lazy_itable_init=0,root_owner=0:0 -L root -d "$1" "$2" 6G
	debugfs -w -R "rmdir lost+found" "$2" 2>/dev/null
' sh "$root" "$image"
