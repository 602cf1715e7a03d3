# Plays the demo's sessions on this host, in a mount namespace of their own: /home and /tmp are theirs alone, and so is
# the account `agent`. Nothing is left behind but what is in OUT.
stage=$1 out=$2 opensafe=$3 player=$4 policies=$5 sessions=$6
shift 6
uid=61184
umask 022
mount -t tmpfs -o mode=755 tmpfs "$stage"
mkdir -p "$stage/agent" "$stage/out" "$stage/bin"
chown "$uid:$uid" "$stage/agent"
cp "$opensafe" "$stage/bin/opensafe"
cp "$player" "$stage/bin/player"
cp -r "$policies" "$stage/policies"
cp -r "$sessions" "$stage/sessions"
{
	echo "agent:x:$uid:$uid:The demo's agent:/home/agent:/bin/bash"
	cat /etc/passwd
} >"$stage/passwd"
mount --bind "$out" "$stage/out"
mount --move "$stage" /home
mount --bind /home/passwd /etc/passwd
mount -t tmpfs -o mode=1777 tmpfs /tmp
cd /home
export PATH="/home/bin:$PATH" OPENSAFE_POLICY_PATH=/home/policies
exec player demo /home/sessions /home/out "$@"
