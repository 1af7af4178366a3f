// Command image puts the binaries of a release into an OCI archive, without a
// container engine and without a base image: what Dockerfile describes, for
// every architecture, and a bill of materials of each binary.
//
// It promises that the same binaries make the same bytes. It leaves building
// the binaries to scripts/release.sh, and pushing the archive to whoever has a
// registry.
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
)

// release is what the image is made of.
type release struct {
	dist              string // has linux-ARCH/rls; receives the rest
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

// run makes an image of the binaries for these architectures.
func (r *release) run(architectures []string) error {
	if r.version == "" || len(architectures) == 0 {
		return errors.New("want -version and architectures")
	}
	var err error
	if r.created, err = sourceDate(); err != nil {
		return err
	}
	images := make(map[string]v1.Image, len(architectures))
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
		if images[arch], err = r.image(arch, binary, bill); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.archive(r.index(architectures, images), r.file(".oci.tar"))
}

// file is the name of a file to publish.
func (r *release) file(suffix string) string {
	return filepath.Join(r.dist, "rls-"+r.version+suffix)
}

// sourceDate is the only time there is in what is built; see
// reproducible-builds.org.
func sourceDate() (time.Time, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since the Unix epoch: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
