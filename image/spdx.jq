# From materials.jq's list: an SPDX 2.3 document. $created, $digest (of Cargo.lock), $toolchain.

def identifier: "SPDXRef-" + (.name + "-" + .version | gsub("[^A-Za-z0-9.-]"; "-"));
(.[] | select(.name == "listless")) as $self
| (. + [{name: "rust-std", version: $toolchain, license: "MIT OR Apache-2.0"},
        {name: "musl", version: "as distributed with rust-std", license: "MIT"}]) as $all
| {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: ("listless-" + $self.version),
    documentNamespace: ("https://github.com/listless-dev/listless/sbom/" + $self.version + "/" + $digest),
    creationInfo: {created: $created, creators: ["Tool: image/sbom.sh"]},
    packages: [$all[] | {
      SPDXID: identifier,
      name,
      versionInfo: .version,
      downloadLocation: "NOASSERTION",
      filesAnalyzed: false,
      licenseConcluded: "NOASSERTION",
      licenseDeclared: .license,
      copyrightText: "NOASSERTION"
    }
    + (if .checksum then {
      checksums: [{algorithm: "SHA256", checksumValue: .checksum}],
      externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: "pkg:cargo/\(.name)@\(.version)"}]
    } else {} end)],
    relationships: ([{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: ($self | identifier)}]
      + [$all[] | select(.name != "listless")
         | {spdxElementId: ($self | identifier), relationshipType: "CONTAINS", relatedSpdxElement: identifier}])
  }
