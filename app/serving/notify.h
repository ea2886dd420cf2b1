/* Notifies systemd, if it started this process with Type=notify, that the server is ready and that it stops.
 *
 * The protocol of sd_notify(3) is one datagram to $NOTIFY_SOCKET and guaranteed to stay; it would be the only use of
 * libsystemd. Without the variable nothing happens. Any thread.
 */
#ifndef QUIRE_APP_SERVING_NOTIFY_H
#define QUIRE_APP_SERVING_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);

#endif
