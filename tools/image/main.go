// Command image makes an OCI archive of the image that Dockerfile describes, for
// every architecture of a release, and a bill of materials of each binary. It needs
// neither a container engine nor a base image.
//
// The same binaries make the same bytes. scripts/release.sh builds the binaries;
// pushing the archive to a registry is left to other tools.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// release is the input of an image.
type release struct {
	dist              string // has linux-ARCH/rls; the other files are written here
	version, revision string
	license           string // file
	created           time.Time
}

func main() {
	var r release
	flag.StringVar(&r.dist, "dist", "dist", "folder with linux-ARCH/rls, for the archive and the bills of materials")
	flag.StringVar(&r.version, "version", "", "version of the release")
	flag.StringVar(&r.revision, "revision", "", "commit that it was built from, if it is known")
	flag.StringVar(&r.license, "license", "LICENSE", "file with the license")
	flag.Parse()
	if err := r.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the archive and the bills of materials for these architectures.
func (r *release) run(architectures []string) error {
	if r.version == "" || len(architectures) == 0 {
		return errors.New("want -version and architectures")
	}
	var err error
	if r.created, err = sourceDate(); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		binary, err := os.ReadFile(filepath.Join(r.dist, "linux-"+arch, "rls"))
		if err != nil {
			return err
		}
		bill, err := r.bill(binary)
		if err != nil {
			return fmt.Errorf("%s: bill of materials: %w", arch, err)
		}
		if err := os.WriteFile(r.file("-linux-"+arch+".cdx.json"), bill, 0o644); err != nil {
			return err
		}
		img, err := r.image(arch, binary, bill)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return r.archive(mutate.Annotations(index, r.labels()).(v1.ImageIndex), r.file(".oci.tar"))
}

// file returns the name of a published file.
func (r *release) file(suffix string) string {
	return filepath.Join(r.dist, "rls-"+r.version+suffix)
}

// sourceDate returns SOURCE_DATE_EPOCH (see reproducible-builds.org), the only time
// that the files contain.
func sourceDate() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since the Unix epoch: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
