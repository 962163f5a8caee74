# A node of a cluster in a container, on any Linux:
#
#   docker build -t lockstep .
#   docker run --network host --shm-size 1g -v lockstep:/var/lib/lockstep lockstep
#   docker exec -it CONTAINER lockstep key
#
# --network host, because nodes find each other by multicast. The volume keeps the key, the models and what is up.
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        cmake ninja-build gcc libc6-dev pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libsodium-dev libhwloc-dev \
        libgnutls28-dev libcurl4-openssl-dev libedit-dev libibverbs-dev libvulkan-dev glslc \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
    && cmake --build /build --target all \
    && DESTDIR=/image cmake --install /build

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
        libjansson4 libpcre2-8-0 libutf8proc2 libsodium23 libhwloc15 libgnutls30 libcurl4 libedit2 libibverbs1 \
        ibverbs-providers libvulkan1 ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/lockstep lockstep
COPY --from=build /image/usr/bin/lockstep /usr/bin/lockstep
USER lockstep
WORKDIR /var/lib/lockstep
VOLUME /var/lib/lockstep
EXPOSE 7342/tcp 8080/tcp
ENTRYPOINT ["lockstep"]
CMD ["node"]
