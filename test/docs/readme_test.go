package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// patience is how long a command may take to start: it may build the program first.
const patience = 3 * time.Minute

// shell runs the commands of a document as a reader would, in dir. The service listens on free
// ports instead of its defaults.
type shell struct {
	dir   string
	env   []string
	ports *strings.Replacer
	http  string
	demo  string // the URL that make demo prints; "" before
}

func newShell(t *testing.T, dir string) *shell {
	t.Helper()
	port := func() string { return strconv.Itoa(testenv.FreePort(t)) }
	http, grpc := port(), port()
	s := &shell{
		dir: dir,
		ports: strings.NewReplacer("localhost:8080", "127.0.0.1:"+http,
			"rls client ", "rls client --addr=127.0.0.1:"+grpc+" "),
		http: http,
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MAKE") && !strings.HasPrefix(e, "MFLAGS") { // variables of the make that runs this test
			s.env = append(s.env, e)
		}
	}
	s.env = append(s.env, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT="+http, "GRPC_PORT="+grpc, "DEBUG_PORT="+port())
	return s
}

func (s *shell) command(script string) *exec.Cmd {
	script = s.ports.Replace(script)
	if s.demo != "" {
		script = strings.ReplaceAll(script, "http://127.0.0.1:8000/", s.demo)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, s.env
	// A process group of its own, so that its children can be stopped with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs the script and returns its output.
func (s *shell) run(t *testing.T, script string) string {
	t.Helper()
	out, err := s.command(script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// start runs the script until the test ends. It returns when ready reports true
// for the output so far.
func (s *shell) start(t *testing.T, script string, ready func(output string) bool) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "output")
	log, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.command(script)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { _ = cmd.Wait(); close(stopped) }() // how it ended is in its output
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-stopped:
		case <-time.After(20 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			t.Errorf("%s did not stop", strings.TrimSpace(script))
		}
		_ = log.Close()
		if t.Failed() {
			t.Logf("%s\n%s", script, read(output))
		}
	})
	testenv.Eventually(t, patience, func() bool {
		select {
		case <-stopped:
			t.Fatalf("%s ended at once", script)
		default:
		}
		return ready(read(output))
	}, script+" is up")
}

func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestREADME runs each sh block of the README, in order. Its output must equal the
// text or json block after it, in which "..." stands for anything.
func TestREADME(t *testing.T) {
	s := newShell(t, root)
	blocks := blocksOf(t, "README.md")
	demoURL := regexp.MustCompile(`curl -i (http://\S+)`)
	ran := map[string]bool{}
	for i, b := range blocks {
		if b.lang != "sh" {
			continue
		}
		shown := shownAfter(blocks[i+1:])
		script := strings.TrimSpace(b.text)
		ran[script] = true
		switch {
		case script == "make run":
			s.serve(t, script)
			inOneMinute(t)
		case script == "make demo":
			s.start(t, script, func(output string) bool {
				url := demoURL.FindStringSubmatch(output)
				if url != nil {
					s.demo = url[1]
				}
				return url != nil
			})
		case len(shown) == 0:
			t.Errorf("README.md:%d does not show what it prints:\n%s", b.line, script)
		case strings.HasPrefix(script, "curl -i "):
			for n := 1; n <= 4; n++ {
				got := s.run(t, script)
				switch n {
				case 1:
					compare(t, "README.md", b, got, shown[0])
				case 4:
					compare(t, "README.md", b, got, shown[1])
				}
			}
		default:
			compare(t, "README.md", b, s.run(t, script), shown[0])
		}
	}
	if !ran["make run"] || !ran["make demo"] || len(ran) < 6 {
		t.Errorf("README.md has lost commands; left are %d", len(ran))
	}
}

// blocksOf returns the fenced blocks of a document.
func blocksOf(t *testing.T, path string) []*part {
	t.Helper()
	return slices.DeleteFunc(parts(t, path), (*part).isTable)
}

// shownAfter is the output of a command in the blocks after it.
func shownAfter(blocks []*part) (shown []string) {
	for _, next := range blocks {
		if next.lang != "text" && next.lang != "json" {
			break
		}
		shown = append(shown, next.text)
	}
	return shown
}

// serve starts the script, which serves until the test ends, and returns when it is healthy.
func (s *shell) serve(t *testing.T, script string) {
	t.Helper()
	s.start(t, script, func(string) bool {
		return exec.Command("curl", "-sf", "http://127.0.0.1:"+s.http+"/healthcheck").Run() == nil
	})
}

// TestGuides runs each sh block of these documents in a folder that has the program, config/ and a
// log; a block that serves goes on. Its output must equal the text block after it, if there is one.
func TestGuides(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	for path, commands := range map[string]int{"docs/first-rule.md": 3, "docs/match.md": 1, "docs/testing.md": 2} {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, to := range map[string]string{"bin/rls": program, "config": config} {
				if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			log := `{"start_time": "2026-11-20T10:00:00Z", "downstream_remote_address": "192.0.2.1:4711"}` + "\n"
			if err := os.WriteFile(filepath.Join(dir, "access.log"), []byte(log), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newShell(t, dir)
			ran := 0
			blocks := blocksOf(t, path)
			for i, b := range blocks {
				if b.lang != "sh" {
					continue
				}
				ran++
				if strings.HasSuffix(b.text, " serve\n") {
					s.serve(t, b.text)
					continue
				}
				got := s.run(t, b.text)
				if shown := shownAfter(blocks[i+1:]); len(shown) > 0 {
					compare(t, path, b, got, shown[0])
				}
			}
			if ran != commands {
				t.Errorf("%s has %d commands, want %d", path, ran, commands)
			}
		})
	}
}

// inOneMinute waits for the next minute if this one ends soon, because the quick
// start counts per minute.
func inOneMinute(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, time.Minute, func() bool { return time.Now().Second() < 40 }, "a new minute")
}

// compare fails the test unless got is the output that the document at path shows. "..." in
// a line stands for any text, and a line of its own for any number of lines.
func compare(t *testing.T, path string, b *part, got, shown string) {
	t.Helper()
	pattern := regexp.QuoteMeta(shown)
	pattern = strings.ReplaceAll(pattern, "\n\\.\\.\\.\n", "\n(?s:.*)")
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, `.*`)
	got = strings.ReplaceAll(got, "\r", "")
	if !regexp.MustCompile(`(?m:^)` + pattern + `\z`).MatchString(got) {
		t.Errorf("%s:%d prints\n%s\nand not\n%s", path, b.line, got, shown)
	}
}

// TestREADMEBeginsWithACommand: a reader gets to the first command within 120 words.
func TestREADMEBeginsWithACommand(t *testing.T) {
	before, _, found := strings.Cut(readDoc(t, "README.md"), "```sh")
	if n := len(strings.Fields(before)); !found || n > 120 {
		t.Errorf("%d words stand before README's first command", n)
	}
}

// TestREADMENamesTargets: the Makefile has every target that README.md names.
func TestREADMENamesTargets(t *testing.T) {
	makefile := "\n" + readDoc(t, "Makefile")
	for _, name := range named(t, "README.md", "make ([a-z-]+)[`\n]", 5) {
		if !strings.Contains(makefile, "\n"+name+":") {
			t.Errorf("README.md speaks of make %s, which does not exist", name)
		}
	}
}

// TestREADMENamesSettings: docs/settings.md has every variable that README.md
// names.
func TestREADMENamesSettings(t *testing.T) { namesSettings(t, "README.md", 10) }

// namesSettings fails the test unless the document names variables at least so
// many times, and docs/settings.md has each of them.
func namesSettings(t *testing.T, path string, least int) {
	t.Helper()
	settings := readDoc(t, "docs/settings.md")
	for _, name := range named(t, path, "(?:`|\n)([A-Z]+_[A-Z_]*[A-Z])[`=]", least) {
		if !strings.Contains(settings, "| `"+name+"` |") {
			t.Errorf("%s names %s, which docs/settings.md does not have", path, name)
		}
	}
}
