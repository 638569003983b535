"""The two scripts of ``deploy``, run by bash in the container.

Names travel NUL-separated on standard input, so that any name will do.
"""

# The hash of each file named, in that order, NUL-separated; empty for one that cannot be read. For a
# large file openssl is asked where it is at hand: it uses what the processor has for this, and
# sha256sum does not.
_HASHES = r"""
hashes() {
  local path digest k=0 large=() fast=() slow=() rest=()
  if command -v openssl >/dev/null; then
    mapfile -t -d '' large < <(printf '%s\0' "$@" |
      xargs -0 -r sh -c 'find "$@" -maxdepth 0 -size +8388608c -print0' find 2>/dev/null)
    wait "$!"  # or it would stay behind when this shell ends
  fi
  for path in "$@"; do
    digest=
    if [ "$k" -lt "${#large[@]}" ] && [ "$path" = "${large[k]}" ]; then
      k=$((k + 1)) digest=$(openssl dgst -sha256 -r <"$path" 2>/dev/null) digest=${digest%% *}
    fi
    if [ "${#digest}" = 64 ]; then fast+=("$digest"); else fast+=("") slow+=("$path"); fi
  done
  mapfile -t -d '' rest < <(printf '%s\0' "${slow[@]}" | xargs -0 -r sha256sum -z -- 2>/dev/null)
  wait "$!"; k=0
  for ((i = 1; i <= $#; i++)); do
    digest=${fast[i - 1]}
    if [ -z "$digest" ] && [ "$k" -lt "${#rest[@]}" ] && [ "${rest[k]#*  }" = "${!i}" ]; then
      digest=${rest[k]%% *} k=$((k + 1))
    fi
    printf '%s\0' "$digest"
  done
}
"""

# Kind, mode, owner and name of each path that exists; then, after an empty item, the hash and, as the
# next item, the name of each regular file.
LOOK = (
    _HASHES
    + r"""
set -u
mapfile -t -d '' paths
printf '%s\0' "${paths[@]}" |
  xargs -0 stat --printf '%F\t%a\t%u:%g\t%U:%G\t%n\0' -- 2>/dev/null
printf '\0'
regular=()
for path in "${paths[@]}"; do [ -L "$path" ] || [ ! -f "$path" ] || regular+=("$path"); done
[ "${#regular[@]}" -gt 0 ] || exit 0
mapfile -t -d '' digests < <(hashes "${regular[@]}"); wait "$!"
for i in "${!regular[@]}"; do printf '%s\0%s\0' "${digests[i]}" "${regular[i]}"; done
exit 0
"""
)

# Arguments: number of files, token, file to read instead of standard input. Input: for each file its
# path, hash, owner and the name to keep the replaced one under; then the archive. New files come into
# a folder `.token` beside their places and are moved out of it together; old ones get a second name in
# `.token.old` meanwhile. What goes wrong before the moving leaves only these folders, which are
# removed; what goes wrong after it is taken back. Exit code 70: that failed too.
INSTALL = (
    _HASHES
    + r"""
set -u -o pipefail
count=$1 new=.$2 old=.$2.old; [ -z "$3" ] || exec <"$3"
mapfile -t -d '' -n $((count * 4)) told
paths=() parts=() wants=() owners=() asides=() kept=0 moving=0 complete=0
declare -A places=() owned=()
no() { echo "$2" >&2; exit "$1"; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
for ((i = 0; i * 4 + 3 < ${#told[@]}; i++)); do
  path=${told[i * 4]} owner=${told[i * 4 + 2]} place=${told[i * 4]%/*}/
  paths+=("$path") parts+=("$place$new/${path##*/}") wants+=("${told[i * 4 + 1]}")
  owners+=("$owner") asides+=("${told[i * 4 + 3]}") places[$place]+=" $i"
  [ -z "$owner" ] || owned[$owner]+=" $i"
done
finish() {
  local code=$? i place before failed=0
  trap '' TERM INT HUP
  for ((i = 0; i < ${#paths[@]} && complete == 0; i++)); do
    place=${paths[i]%/*}/ before=${paths[i]%/*}/$old/${paths[i]##*/}
    if [ "$moving" = 1 ] && ! there "${parts[i]}"; then  # it has been moved out
      if there "$before"; then mv -fT -- "$before" "${paths[i]}" || failed=1
      else rm -f -- "${paths[i]}" || failed=1; fi
    fi
    [ "$kept" = 0 ] || [ -z "${asides[i]}" ] || rm -f -- "${asides[i]}" || failed=1
  done
  for place in "${!places[@]}"; do rm -rf -- "$place$new" "$place$old"; done
  [ "$failed" = 0 ] || { echo "some files could not be put back" >&2; exit 70; }
  exit "$code"
}
trap finish EXIT; trap 'exit 143' TERM INT HUP
[ "${#paths[@]}" = "$count" ] || no 66 "the list of files was cut short"
for place in "${!places[@]}"; do [ -d "$place" ] || no 65 "there is no folder $place"; done
for ((i = 0; i < count; i++)); do
  [ -L "${paths[i]}" ] || [ ! -d "${paths[i]}" ] || no 65 "${paths[i]} is a folder"
  [ -z "${asides[i]}" ] || ! there "${asides[i]}" || no 67 "${asides[i]} is there already"
done
umask 077
timeout 840 tar -b 512 -xpPf - --no-same-owner || no 66 "the archive did not arrive whole"
mapfile -t -d '' got < <(hashes "${parts[@]}"); wait "$!"
for ((i = 0; i < count; i++)); do
  [ "${got[i]}" = "${wants[i]}" ] || no 66 "${paths[i]} changed on the way"
done
for owner in "${!owned[@]}"; do
  for i in ${owned[$owner]}; do printf '%s\0' "${parts[i]}"; done | xargs -0 chown -- "$owner" ||
    no 68 "the owner cannot be $owner"
done
printf '%s\0' "${parts[@]}" | xargs -0 -n 25 -P 8 sync -- ||
  no 69 "the files cannot be written to disk"
kept=1
for ((i = 0; i < count; i++)); do
  if [ -n "${asides[i]}" ] && there "${paths[i]}"; then
    ln -- "${paths[i]}" "${asides[i]}" 2>/dev/null || cp -a -- "${paths[i]}" "${asides[i]}" ||
      no 69 "${paths[i]} cannot be set aside"
  fi
done
for place in "${!places[@]}"; do
  befores=()
  for i in ${places[$place]}; do ! there "${paths[i]}" || befores+=("${paths[i]}"); done
  [ "${#befores[@]}" -gt 0 ] || continue
  mkdir -- "$place$old" || no 69 "there is no room in $place"
  printf '%s\0' "${befores[@]}" | xargs -0 ln -t "$place$old" -- 2>/dev/null
  for path in "${befores[@]}"; do  # where a link is impossible, a copy
    there "$place$old/${path##*/}" || cp -a -t "$place$old" -- "$path" ||
      no 69 "$path cannot be kept"
  done
done
moving=1
for place in "${!places[@]}"; do
  for i in ${places[$place]}; do printf '%s\0' "${parts[i]}"; done |
    xargs -0 mv -f -t "$place" -- || no 69 "a file in $place cannot be replaced"
done
complete=1
printf '%s\0' "${!places[@]}" | xargs -0 sync --
exit 0
"""
)
