package settings

import (
	"fmt"
	"slices"
	"strings"
)

// Error is a setting with a wrong value.
type Error struct {
	Setting string // environment variable, e.g. GRPC_PORT
	Value   string // as it was given
	Want    string // values that would be right
}

func (e Error) Error() string {
	flag := strings.ToLower(strings.ReplaceAll(e.Setting, "_", "-"))
	return fmt.Sprintf("%s (--%s) is %q: want %s", e.Setting, flag, e.Value, e.Want)
}

// Errors is all problems of the settings.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// sorted sorts the problems by setting, and returns them as an error: nil if there
// are none.
func (e Errors) sorted() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b Error) int { return strings.Compare(a.Setting, b.Setting) })
	return e
}

// require adds an error unless ok.
func (e *Errors) require(ok bool, setting string, value any, want string) {
	if !ok {
		*e = append(*e, Error{setting, fmt.Sprint(value), want})
	}
}

// pair adds an error when only one of a certificate and its key is set.
func (e *Errors) pair(cert, certFile, key, keyFile string) {
	e.require(certFile == "" || keyFile != "", key, keyFile, "a file, because "+cert+" is set")
	e.require(keyFile == "" || certFile != "", cert, certFile, "a file, because "+key+" is set")
}

// oneSecret adds an error when a secret is set and a file with it, too. The error
// does not show the secret.
func (e *Errors) oneSecret(setting, secret, fileSetting, file string) {
	e.require(secret == "" || file == "", setting, "...", "nothing, because "+fileSetting+" is set")
}
