set(QUIRE_FRONT_CLIENT_SOURCES engine_client.c engine_connect.c engine_requests.c)
