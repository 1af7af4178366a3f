package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// bill returns the bill of materials of a binary, in CycloneDX's JSON: the modules
// that the Go toolchain recorded in it, and the standard library.
func (r *release) bill(binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	program := module(info.Main.Path, r.version)
	program.Type = cdx.ComponentTypeApplication
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	std := module("std", strings.TrimPrefix(info.GoVersion, "go"))
	components, refs := []cdx.Component{std}, []string{std.BOMRef}
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m) // the module that was linked
		c := module(m.Path, m.Version)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}

	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.Nil, sum[:]).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	err = cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return b.Bytes(), err
}

func module(path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}
