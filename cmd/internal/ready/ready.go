// Package ready asks a service of this module over HTTP whether it is ready: for the health checks
// of containers, whose image has no other program that could.
package ready

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Time limits one call of Check.
const Time = 5 * time.Second

// Check asks the service that listens on addr, a host and a port, whether it is ready. It returns
// nil if so, or else the service's reasons.
func Check(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()

	url := "http://" + Reachable(addr) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	// No keep-alives, so that no connection outlives the call.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode == http.StatusOK {
		return nil
	}

	const enough = 4096
	body, err := io.ReadAll(io.LimitReader(response.Body, enough))
	return errors.Join(fmt.Errorf("not ready: %s", strings.TrimSpace(string(body))), err)
}

// Reachable returns the host and port to connect to for the address of a listener.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
