package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin/client"
)

// listener is the API as one listener serves it.
type listener struct {
	*API
	socket string // the path of the Unix socket; "" is TCP
}

// caller is the sender of a request.
type caller struct {
	who  string // the subject of the certificate, the name of the token, or unix
	from string // the address, or the path of the socket
	role role
	// token is the token that the caller gave, also to a Unix socket; "" if none.
	token string
	bound *binding // nil: the token is bound to nothing
	to    net.Addr // where the listener got the request
	// stillAllowed looks the token up again: it reports whether the token counts and has
	// at least this role, and is bound to nothing.
	stillAllowed func() bool
}

type callerKey struct{}

// callerOf returns the caller whom ServeHTTP has put into the context.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// ServeHTTP implements [http.Handler]. It answers a request only if its Host and its
// Origin are right. The page's files need no token; the rest needs a role that suffices.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A client without a token shall not hold a connection by a body that it does not send.
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyWithin))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case !l.knows(r):
		refuse(w, r, errForeignHost)
	case foreign(r):
		refuse(w, r, errForeignOrigin)
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && isPage(r.URL.Path):
		page(w, r)
	case r.URL.Path == signInPath:
		l.signIn(w, r)
	default:
		l.admit(w, r)
	}
}

// admit answers a request for data, if its caller is known.
func (l *listener) admit(w http.ResponseWriter, r *http.Request) {
	h, c := w.Header(), l.identify(r)
	h.Set("Cache-Control", "no-store")
	if c.role == nobody {
		h.Set("WWW-Authenticate", "Bearer")
		refuse(w, r, errNoToken)
		return
	}
	h.Set("Rls-Role", c.role.String()) // tells the page whether it may offer changes
	h.Set(replicaHeader, l.id+" "+l.host)
	if l.options.Fleet != nil {
		h.Set(client.FleetHeader, "true")
	}
	switch {
	case c.bound != nil && !c.bound.pass():
		h.Set("Retry-After", "1")
		refuse(w, r, errPace)
	case isGRPC(r):
		refuse(w, r, errNoGRPC)
	default:
		c.stillAllowed = func() bool { again := l.identify(r); return again.role >= c.role && again.bound == nil }
		l.route(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	}
}

// here is the address at which this process got the question of a caller, if it is one of a
// network, and its text.
func here(c *caller) (at netip.AddrPort, text string) {
	to, isTCP := c.to.(*net.TCPAddr)
	if !isTCP {
		return at, c.from
	}
	at = netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), to.AddrPort().Port())
	return at, at.String()
}

var (
	errForeignHost = overHTTP(http.StatusMisdirectedRequest, codes.InvalidArgument,
		"this API has no such host: want localhost, the address of the listener or a name of ADMIN_FLEET or ADMIN_ALLOWED_HOSTS")
	errForeignOrigin = status.Error(codes.PermissionDenied, "pages of other origins may not call this API")
	errNoToken       = status.Error(codes.Unauthenticated, "want a right token: Authorization: Bearer TOKEN")
	errNoGRPC        = status.Error(codes.Unimplemented, "this API is JSON over HTTP: docs/admin.md has its routes, such as POST /v1/get")
	errReadOnly      = status.Error(codes.PermissionDenied, "the role of this token is read: changes need a token whose role is write")
)

// bearer is the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// identify returns the sender of a request; without a right token the role is nobody.
func (l *listener) identify(r *http.Request) caller {
	token := bearer(r)
	to, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if l.socket != "" {
		return caller{who: "unix", from: "unix:" + l.socket, role: writer, token: token, to: to}
	}
	if token == "" {
		return caller{}
	}
	known := l.options.Link.find(token)
	if known.role == nobody {
		known = l.options.Tokens.find(token)
	}
	name := known.name
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.String()
	}
	return caller{who: name, from: r.RemoteAddr, role: known.role, token: token, bound: known.bound, to: to}
}

// knows reports whether the request's Host is a name of this listener. Requests of a page
// that reaches this address by a name of its own (DNS rebinding) have another Host.
func (l *listener) knows(r *http.Request) bool {
	own := url.URL{Host: r.Host}
	host := strings.ToLower(strings.TrimSuffix(own.Hostname(), "."))
	if host == "localhost" || slices.Contains(l.options.Hosts, host) {
		return true
	}
	addr, _ := netip.ParseAddr(host)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return addr.IsLoopback() || local != nil && local.AddrPort().Addr().Unmap() == addr.Unmap()
}

// foreign reports whether a browser sent the request for a page of another origin.
func foreign(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Origin"), func(origin string) bool {
		u, err := url.Parse(origin)
		return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
	})
}
