package main

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/beanstalkd/go-beanstalk"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

func beanstalkd() bench.Peer {
	program, missing := find("beanstalkd", "/usr/bin")
	return bench.Peer{
		Name:    "beanstalkd",
		Missing: missing,
		Relaxed: true,
		Choice:  library("github.com/beanstalkd/go-beanstalk") + ", a connection for each client; put, and for work reserve and delete; it has no pop without a reservation and no batches",
		Notes:   "-b and -f 0.",
		Start: func(ctx context.Context, dir string, relaxed bool) (bench.PeerServer, error) {
			s, err := startServer(ctx, dir, "beanstalkd", syscall.SIGTERM, func(host, port string) []string {
				args := []string{program, "-l", host, "-p", port, "-b", dir}
				if relaxed {
					return append(args, "-F")
				}
				return append(args, "-f", "0")
			})
			if err != nil {
				return nil, err
			}

			return &beanstalkdServer{s}, s.awaitVersion(ctx, func() (string, error) {
				c, err := beanstalk.Dial("tcp", s.address)
				if err != nil {
					return "", err
				}
				defer c.Close()
				version, err := exec.CommandContext(ctx, program, "-v").Output()
				return strings.TrimSpace(strings.TrimPrefix(string(version), "beanstalkd")), err
			})
		},
	}
}

type beanstalkdServer struct{ *server }

func (s *beanstalkdServer) Connect(_ context.Context, clients, _, priorities int) ([]*bench.PeerClient, error) {
	tube := "queue-" + strconv.Itoa(priorities)

	var all []*bench.PeerClient
	for range clients {
		c, err := beanstalk.Dial("tcp", s.address)
		if err != nil {
			return nil, err
		}
		s.onStop(func() { _ = c.Close() }) // nothing is under way any more
		put, reserve := beanstalk.NewTube(c, tube), beanstalk.NewTubeSet(c, tube)
		all = append(all, &bench.PeerClient{
			Pushes: bench.One, Works: bench.One,
			Push: func(_ context.Context, items []bench.PeerItem) error {
				_, err := put.Put(items[0].Value, uint32(items[0].Priority), 0, leaseTime)
				return err
			},
			Work: func(context.Context, int) ([][]byte, error) {
				id, value, err := reserve.Reserve(0)
				if errors.Is(err, beanstalk.ErrTimeout) {
					return nil, bench.ErrEmpty
				}
				if err != nil {
					return nil, err
				}
				return [][]byte{value}, c.Delete(id)
			},
		})
	}
	return all, nil
}
