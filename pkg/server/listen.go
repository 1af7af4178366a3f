package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// listenTCP shares the port with other processes of the same user that ask for
// it in the same way. Port 0 takes a free one.
func listenTCP(addr string) (net.Listener, error) {
	shared := net.ListenConfig{Control: reusePort}
	return shared.Listen(context.Background(), "tcp", addr)
}

func (s *Server) listenGRPC() (_ *handshakes, err error) {
	var l net.Listener
	if path := s.cfg.GRPC.UDS; path != "" {
		if err = removeDeadSocket(path); err == nil {
			l, err = net.Listen("unix", path)
		}
	} else {
		l, err = listenTCP(address(s.cfg.GRPC.Host, s.cfg.GRPC.Port))
	}
	if err != nil {
		return nil, fmt.Errorf("gRPC: %w", err)
	}
	return newHandshakes(l), nil
}

// removeDeadSocket removes what a process that was killed left behind, and
// nothing else.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil // listening says what is wrong, if anything
	}
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}
