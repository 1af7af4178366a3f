package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
