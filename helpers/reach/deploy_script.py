"""The two scripts of ``deploy``, run by bash in the container.

Names travel NUL-separated on standard input, so that any name will do.
"""

# Kind, mode, owner and name of each path that exists; then, after an empty item, hash and name of
# each regular file.
LOOK = r"""
set -u
mapfile -t -d '' paths
printf '%s\0' "${paths[@]}" |
  xargs -0 stat --printf '%F\t%a\t%u:%g\t%U:%G\t%n\0' -- 2>/dev/null
printf '\0'
for path in "${paths[@]}"; do
  [ ! -L "$path" ] && [ -f "$path" ] && printf '%s\0' "$path"
done | xargs -0 -r sha256sum -z --
exit 0
"""

# Input: for each file its path, temporary name, hash, owner and the name to keep the replaced one
# under; then the archive. Anything that goes wrong before the first rename leaves only temporary
# files, which are removed; anything after it is taken back. Exit code 70: that failed too.
INSTALL = r"""
set -u -o pipefail
count=$1; [ -z "$2" ] || exec <"$2"
mapfile -t -d '' -n $((count * 5)) told
paths=() parts=() wants=() owners=() asides=() done=0 complete=0
no() { echo "$2" >&2; exit "$1"; }
for ((i = 0; i < ${#told[@]}; i += 5)); do
  paths+=("${told[i]}") parts+=("${told[i + 1]}") wants+=("${told[i + 2]}")
  owners+=("${told[i + 3]}") asides+=("${told[i + 4]}")
done
second_name() { ! there "$2" && { ln -- "$1" "$2" 2>/dev/null || cp -a -- "$1" "$2"; }; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
finish() {
  local code=$? i failed=0
  trap '' TERM INT HUP
  if [ "$complete" = 0 ]; then
    for ((i = done - 1; i >= 0; i--)); do
      if ! there "${parts[i]}"; then  # it has been renamed
        if there "${parts[i]}.old"; then mv -fT -- "${parts[i]}.old" "${paths[i]}" || failed=1
        else rm -f -- "${paths[i]}" || failed=1; fi
      fi
      [ -z "${asides[i]}" ] || rm -f -- "${asides[i]}" || failed=1
    done
  fi
  for part in "${parts[@]}"; do printf '%s\0%s.old\0' "$part" "$part"; done | xargs -0 -r rm -f --
  [ "$failed" = 0 ] || { echo "some files could not be put back" >&2; exit 70; }
  exit "$code"
}
trap finish EXIT; trap 'exit 143' TERM INT HUP
[ "${#paths[@]}" = "$count" ] || no 66 "the list of files was cut short"
for ((i = 0; i < count; i++)); do
  folder=${paths[i]%/*}/
  [ -d "$folder" ] || no 65 "there is no folder $folder"
  [ -L "${paths[i]}" ] || [ ! -d "${paths[i]}" ] || no 65 "${paths[i]} is a folder"
  [ -z "${asides[i]}" ] || ! there "${asides[i]}" || no 67 "${asides[i]} is there already"
done
umask 077
timeout 840 tar -xpPf - --no-same-owner || no 66 "the archive did not arrive whole"
mapfile -t -d '' got < <(printf '%s\0' "${parts[@]}" | xargs -0 sha256sum -z --)
for ((i = 0; i < count; i++)); do
  [ "${got[i]%% *}" = "${wants[i]}" ] || no 66 "${paths[i]} changed on the way"
done
declare -A owned=()
for ((i = 0; i < count; i++)); do [ -z "${owners[i]}" ] || owned[${owners[i]}]+=" $i"; done
for owner in "${!owned[@]}"; do
  for i in ${owned[$owner]}; do printf '%s\0' "${parts[i]}"; done | xargs -0 chown -- "$owner" ||
    no 68 "the owner cannot be $owner"
done
printf '%s\0' "${parts[@]}" | xargs -0 sync -- || no 69 "the files cannot be written to disk"
for ((i = 0; i < count; i++)); do
  done=$((i + 1))
  if there "${paths[i]}"; then
    second_name "${paths[i]}" "${parts[i]}.old" || no 69 "${paths[i]} cannot be kept"
    [ -z "${asides[i]}" ] || second_name "${paths[i]}" "${asides[i]}" ||
      no 69 "${paths[i]} cannot be set aside"
  fi
  mv -fT -- "${parts[i]}" "${paths[i]}" || no 69 "${paths[i]} cannot be replaced"
done
complete=1
for path in "${paths[@]}"; do printf '%s\0' "${path%/*}/"; done | sort -zu | xargs -0 sync --
exit 0
"""
