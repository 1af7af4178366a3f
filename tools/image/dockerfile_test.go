//go:build linux

package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one instruction of a Dockerfile, with its lines joined.
type instruction struct{ word, rest string }

// stage is the part of a Dockerfile from one FROM to the next.
type stage struct {
	from         string
	instructions []instruction
}

type dockerfile struct {
	global []instruction
	stages []stage
}

// one returns the arguments of the only instruction with that word.
func (s *stage) one(t *testing.T, word string) string {
	t.Helper()
	var found []string
	for _, i := range s.instructions {
		if i.word == word {
			found = append(found, i.rest)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d times %s in the stage from %s", len(found), word, s.from)
	}
	return found[0]
}

func parseDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(string(read(t, filepath.Join(repository, "Dockerfile"))), "")
	text = regexp.MustCompile(`\s*\\\n\s*`).ReplaceAllString(text, " ")
	var d dockerfile
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		i := instruction{word, strings.TrimSpace(rest)}
		switch {
		case word == "":
		case word == "FROM":
			d.stages = append(d.stages, stage{from: rest})
		case len(d.stages) == 0:
			d.global = append(d.global, i)
		default:
			last := &d.stages[len(d.stages)-1]
			last.instructions = append(last.instructions, i)
		}
	}
	return d
}

// TestDockerfile compares Dockerfile with scripts/release.sh and tools/image. It
// does not build it, since the tests have no container engine.
func TestDockerfile(t *testing.T) {
	d := parseDockerfile(t)
	if len(d.stages) != 2 || !strings.HasSuffix(d.stages[0].from, " AS build") || d.stages[1].from != "scratch" {
		t.Fatalf("want a stage that builds and one from scratch, got %+v", d.stages)
	}
	for _, s := range d.stages {
		for _, i := range s.instructions {
			if !slices.Contains([]string{"ARG", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "RUN", "USER", "WORKDIR"}, i.word) {
				t.Errorf("unexpected instruction %s", i.word)
			}
		}
	}
	if len(d.global) != 1 || !strings.HasPrefix(d.global[0].rest, "GO_VERSION=") {
		t.Fatalf("before the stages: %v", d.global)
	}
	module := string(read(t, filepath.Join(repository, "go.mod")))
	if want := strings.TrimPrefix(d.global[0].rest, "GO_VERSION="); !strings.Contains(module, "\ngo "+want+".") {
		t.Errorf("it builds with Go %s, and go.mod wants another", want)
	}

	// The flags of a release, which make the same binary.
	build := string(read(t, filepath.Join(repository, "scripts", "release.sh")))
	var run string
	for _, i := range d.stages[0].instructions {
		if i.word == "RUN" && strings.Contains(i.rest, "go build") {
			run = i.rest
		}
	}
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=false", "-s -w -X main.version=", "-X main.revision="} {
		if !strings.Contains(run, flag) || !strings.Contains(build, flag) {
			t.Errorf("%s is missing in Dockerfile or scripts/release.sh", flag)
		}
	}
	// The accounts and names of the archive's image.
	for _, part := range []string{
		"ln -s rls /image/bin/ratelimit", "/image/etc/ssl/certs/", `nobody:x:65534:65534:nobody:/:/sbin/nologin\n' > /image/etc/passwd`, `nobody:x:65534:\n' > /image/etc/group`,
	} {
		if !strings.Contains(run, part) {
			t.Errorf("Dockerfile does not have %s", part)
		}
	}
	// The files that are copied exist, and .dockerignore does not hide them.
	let := strings.Split(string(read(t, filepath.Join(repository, ".dockerignore"))), "\n")
	copied := 0
	for _, s := range d.stages {
		for _, i := range s.instructions {
			if i.word != "COPY" || strings.HasPrefix(i.rest, "--from=") {
				continue
			}
			fields := strings.Fields(i.rest)
			for _, name := range fields[:len(fields)-1] {
				copied++
				if found, err := filepath.Glob(filepath.Join(repository, name)); err != nil || len(found) != 1 {
					t.Errorf("%s is copied and does not exist", name)
				}
				if !slices.Contains(let, "!"+name) {
					t.Errorf("%s is copied and ignored", name)
				}
			}
		}
	}
	if copied < 5 {
		t.Errorf("only %d files and folders are copied", copied)
	}
	// The program needs packages of these folders only.
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./cmd/rls")
	list.Dir = repository
	packages, err := list.Output()
	if err != nil || len(packages) == 0 {
		t.Fatalf("list the packages of the program: %v", err)
	}
	for path := range strings.FieldsSeq(string(packages)) {
		if folder := strings.Split(path, "/")[2]; !slices.Contains(let, "!"+folder) { // example.org/rls/FOLDER
			t.Errorf("%s is not copied, and the program needs %s", folder, path)
		}
	}
}
