package admin

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/reread"
)

// MinToken is the least length of a token, in bytes.
const MinToken = 16

// role says what a caller may do. A higher role includes the lower ones.
type role uint8

const (
	nobody role = iota
	reader
	writer
)

// roles are the roles as files of tokens write them.
var roles = []string{"", "read", "write"}

// String is the role as files of tokens write it; "" stands for nobody.
func (r role) String() string { return roles[r] }

// Tokens are the callers that a file names. They are in step with the file while the
// watcher runs.
type Tokens struct{ file *reread.Value[[]token] }

// token is a caller. The token itself is not kept, only its hash: all hashes have one
// length, so that a comparison takes the same time for every token.
type token struct {
	name  string
	role  role
	bound *binding // nil: to nothing
	hash  [sha256.Size]byte
}

// OpenTokens reads the file and has the watcher read it again. It fails if the file
// cannot be read or is wrong now. A wrong file that comes later adds no token, and
// revokes the tokens that stand in no right line of it; a file without tokens, or no
// file, revokes all. The watcher logs it. Errors have no tokens.
func OpenTokens(w *reread.Watcher, path string) (*Tokens, error) {
	parse := func(contents []string) ([]token, error) { return parseTokens(path, contents[0]) }
	file, err := reread.Open(w, "ADMIN_TOKEN_FILE", []string{path}, parse, func(last []token, contents []string) []token {
		if contents == nil {
			return nil
		}
		right, _ := parse(contents)
		return remaining(last, right)
	})
	if err != nil {
		return nil, fmt.Errorf("ADMIN_TOKEN_FILE: %w", err)
	}
	return &Tokens{file}, nil
}

// remaining returns the tokens that are in both lists, with the lower of both roles, and bound if one of
// them is. Of two that are bound to different descriptors none remains.
func remaining(last, right []token) (both []token) {
	for _, t := range right {
		for _, before := range last {
			if t.hash != before.hash || t.bound != nil && before.bound != nil && t.bound.String() != before.bound.String() {
				continue
			}
			t.role, t.bound = min(t.role, before.role), cmp.Or(before.bound, t.bound)
			both = append(both, t)
		}
	}
	return both
}

// find returns the token of a caller; without one the role is nobody. It compares the token with all
// others, in constant time.
func (t *Tokens) find(given string) (found token) {
	if t == nil {
		return token{}
	}
	hash := sha256.Sum256([]byte(given))
	for _, known := range t.file.Now() {
		if subtle.ConstantTimeCompare(hash[:], known.hash[:]) == 1 {
			found = known
		}
	}
	return found
}

// parseTokens reads lines of the form NAME ROLE TOKEN, behind which a token with the role read can be bound
// by KEY=VALUE and domain:NAME. Empty lines and lines that
// begin with # have no meaning. It returns the tokens of the right lines also beside an
// error, which has all problems.
func parseTokens(path, text string) (all []token, err error) {
	var problems []error
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) { // without the mark of some editors
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		switch {
		case err != nil:
		case names[t.name]:
			err = fmt.Errorf("there is another token of the name %q: want one name for each token", t.name)
		case hashes[t.hash]:
			err = fmt.Errorf("the token of %q is that of another name: want a token of its own", t.name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", path, number, err))
			continue
		}
		names[t.name], hashes[t.hash] = true, true
		all = append(all, t)
	}
	if len(all) == 0 && len(problems) == 0 {
		return nil, fmt.Errorf("%s: no token: want a line NAME ROLE TOKEN for each", path)
	}
	return all, errors.Join(problems...)
}

// parseToken reads the fields of a line. Only the number of the line may describe
// fields that are not as expected, because any of them may be a token.
func parseToken(fields []string) (token, error) {
	if len(fields) < 3 {
		return token{}, fmt.Errorf("%d words, want 3: NAME ROLE TOKEN", len(fields))
	}
	t := token{name: fields[0], hash: sha256.Sum256([]byte(fields[2]))}
	if t.role = role(max(0, slices.Index(roles, fields[1]))); t.role == nobody {
		return token{}, fmt.Errorf("the second word is no role, want read or write (NAME ROLE TOKEN)")
	}
	if n := len(fields[2]); n < MinToken {
		return token{}, fmt.Errorf("a token of %d bytes, want at least %d", n, MinToken)
	}
	if len(fields) == 3 {
		return t, nil
	}
	if t.role != reader {
		return token{}, errors.New("words behind a token that may write: only a token with the role read can be bound")
	}
	var err error
	t.bound, err = parseBinding(fields[3:])
	return t, err
}

// LinkFor is how long a Link can be used.
const LinkFor = 10 * time.Minute

// Link is a secret with which one browser signs in once, within LinkFor, to read and to change. It keeps
// hashes only. It is safe for concurrent use.
type Link struct {
	ends time.Time

	mu     sync.Mutex
	secret [sha256.Size]byte
	token  [sha256.Size]byte
	used   bool // token counts, in place of secret
}

// NewLink returns a Link and its secret of 130 random bits, which must not be logged.
func NewLink() (l *Link, secret string) {
	secret = rand.Text()
	return &Link{ends: time.Now().Add(LinkFor), secret: sha256.Sum256([]byte(secret))}, secret
}

// exchange returns the token of a browser that has the secret, which counts as long as the process
// runs. It returns false if the secret is wrong, was used, or has ended.
func (l *Link) exchange(secret string) (token string, ok bool) {
	if l == nil {
		return "", false
	}
	given := sha256.Sum256([]byte(secret))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used || !time.Now().Before(l.ends) || subtle.ConstantTimeCompare(given[:], l.secret[:]) == 0 {
		return "", false
	}
	token = rand.Text()
	l.token, l.used = sha256.Sum256([]byte(token)), true
	return token, true
}

// find returns the token of a caller who has that of the browser; without it the role is nobody.
func (l *Link) find(given string) (found token) {
	if l == nil {
		return token{}
	}
	hash := sha256.Sum256([]byte(given))
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used || subtle.ConstantTimeCompare(hash[:], l.token[:]) == 0 {
		return token{}
	}
	return token{name: "link", role: writer}
}

// signInPath takes the secret of a Link in place of a token, and answers with a token.
const signInPath = "/v1/sign-in"

var errUsedLink = status.Error(codes.Unauthenticated, "This link does not sign in: it was used, or it is older than 10 minutes; a restart of rls on a terminal prints a new one")

// signIn answers a browser that was opened by a link.
func (l *listener) signIn(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, r, overHTTP(http.StatusMethodNotAllowed, codes.Unimplemented, "want the method POST"))
		return
	}
	token, ok := l.options.Link.exchange(bearer(r))
	if !ok {
		refuse(w, r, errUsedLink)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Token string `json:"token"`
	}{token})
}
