package main

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

// checkTime limits one request to /readyz.
const checkTime = 5 * time.Second

// checkReady asks the service at addr, a value of PQ_HTTP_ADDR, whether it is ready. It returns nil
// if so, or else the service's reasons.
func checkReady(ctx context.Context, addr string) error {
	if addr == httpOff {
		return errors.New("PQ_HTTP_ADDR is off: there is nothing to ask")
	}

	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()

	url := "http://" + reachable(addr) + "/readyz"
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

// reachable returns the host and port to connect to, given those of a listener.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
