# From `cargo metadata`: the crates that become part of the binary, with licence and checksum.
# Macros run in the compiler only, and what build scripts use does not count either.
# $lock: lines "name version checksum" of Cargo.lock.

($lock | split("\n") | map(select(. != "") | split(" ") | {key: (.[0] + " " + .[1]), value: .[2]})
  | from_entries) as $checksums
| (.packages | map({key: .id, value: .}) | from_entries) as $packages
| (.resolve.nodes | map({key: .id, value: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | .pkg]})
  | from_entries) as $uses
| def is_macro: any(.targets[]; .kind | index("proc-macro"));
  def reached($found; $todo):
    if $todo == [] then $found
    else reached($found + $todo; [$todo[] | $uses[.][]] | unique
      | map(select($packages[.] | is_macro | not)) - ($found + $todo))
    end;
[reached([]; [.resolve.root])[] | $packages[.]
  | {name, version, license: (.license // "NOASSERTION" | gsub("/"; " OR ")), manifest: .manifest_path,
     repository, checksum: $checksums[.name + " " + .version]}]
| sort_by(.name, .version)
