package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/page"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/logging"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/top"
)

// adminParts has the parts of the process that the admin API shows and changes.
type adminParts struct {
	limits *service.Service
	status *status.Status
	top    *top.Top // nil counts no heavy hitters
}

// adminOn reports whether a setting names tokens or a socket.
func adminOn(s *settings.Settings) bool { return s.Admin.TokenFile != "" || s.Admin.UDS != "" }

// newAdmin returns the listeners of the admin API: one with tokens, and a Unix socket.
// Without a setting that names tokens or a socket it returns no listener. ctx ends when the process is
// told to end.
func newAdmin(ctx context.Context, s *settings.Settings, parts *adminParts, watch *reread.Watcher, stderr io.Writer, log *slog.Logger) ([]server.HTTP, error) {
	a := &s.Admin
	if !adminOn(s) {
		return nil, nil
	}
	o := admin.Options{
		Limits: parts.limits,
		Status: parts.status,
		Rules:  func() *explain.Rules { return rulesInForce(parts.status) },
		Page:   page.Handler(),
		Log:    log,
		Audit:  logging.New(stderr, "info", s.Log.Format),
		Hosts:  a.Hosts(),
		Ending: ctx,
	}
	if parts.top != nil {
		o.Top = parts.top
	}
	if a.TokenFile != "" {
		var err error
		if o.Tokens, err = admin.OpenTokens(watch, a.TokenFile); err != nil {
			return nil, fmt.Errorf("ADMIN_TOKEN_FILE: %w", err)
		}
	}
	api := admin.New(o)
	var all []server.HTTP
	if a.TokenFile != "" {
		listen := server.HTTP{Name: "admin", Address: hostPort(a.Host, a.Port), Handler: api.Handler()}
		if a.UseTLS {
			own, err := certs.Open(watch, "admin", certs.Files{Cert: a.TLSCert, Key: a.TLSKey, CA: a.ClientTLSCACert})
			if err != nil {
				return nil, fmt.Errorf("admin: %w", err)
			}
			listen.TLS = own.Server(a.ClientTLSSAN)
		} else if !a.Loopback() {
			log.Warn("the admin listener has no TLS, so tokens cross the network in clear text", "ADMIN_HOST", a.Host)
		}
		all = append(all, listen)
	}
	if a.UDS != "" {
		all = append(all, server.HTTP{Name: "admin socket", UnixSocket: a.UDS, Handler: api.SocketHandler(a.UDS)})
	}
	return all, nil
}
